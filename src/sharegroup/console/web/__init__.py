"""From HTTP to page functions and back: routes, live values, headers, names of the port."""
