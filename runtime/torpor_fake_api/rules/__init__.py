"""What a Messages API accepts: rules over a decoded request, each naming the place where it is broken."""
