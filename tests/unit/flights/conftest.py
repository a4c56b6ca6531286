"""matplotlib's list of fonts is built before the tests.

On a machine where matplotlib has not run before, it starts `fc-list` and keeps the list in a file.
No unit test may start a process.
"""

import matplotlib.font_manager  # noqa: F401  # The list is built by the import.
