"""Blocking versions of the clients, for programs without an event loop.

They may be used from any number of threads.
"""

from sharegroup.client.sync.admin import AdminClient
from sharegroup.client.sync.consumer import Consumer
from sharegroup.client.sync.producer import Producer, SendFuture
from sharegroup.client.sync.share_consumer import ShareConsumer

__all__ = ["AdminClient", "Consumer", "Producer", "SendFuture", "ShareConsumer"]
