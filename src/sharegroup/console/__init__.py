"""A console in the browser for share groups and dead letters, on any Kafka.

Names are imported when they are first used: the console needs an extra, its parts for the command
line do not.
"""

from typing import TYPE_CHECKING

from sharegroup.lazy_names import lazy_names

if TYPE_CHECKING:
    from sharegroup.console.access.roles import (
        Change as Change,
        Grant as Grant,
        Role as Role,
        User as User,
    )
    from sharegroup.console.mounting import MountedConsole as MountedConsole, console as console

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "console.access.roles": "Change Grant Role User",
            "console.mounting": "MountedConsole console",
        },
    )
