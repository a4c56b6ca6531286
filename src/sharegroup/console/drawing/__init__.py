"""Charts as SVG, made on the server.  Colours are classes of the style sheet, light and dark."""
