"""The three clients for programs without an event loop; usable from any number of threads."""

from sharegroup.client.sync.admin import AdminClient
from sharegroup.client.sync.producer import Delivery, Producer
from sharegroup.client.sync.share_consumer import ShareConsumer

__all__ = ["AdminClient", "Delivery", "Producer", "ShareConsumer"]
