"""Messages and frames: decoders and encoders made from the schema."""
