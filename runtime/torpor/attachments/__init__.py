"""Files that people send: what they are by content, made fit for models, and kept until a message names them."""
