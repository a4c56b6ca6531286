"""A console in the browser for share groups and dead letters, on any Kafka."""

from sharegroup.errors import MissingExtra
from sharegroup.installation import pip_install

try:
    # First, so that one message names the extra, whatever is imported of the console.
    import jinja2 as _jinja2  # noqa: F401
    import starlette as _starlette  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra(f"{error}: the console needs {pip_install('console')}") from error
