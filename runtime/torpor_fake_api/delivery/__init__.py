"""From a scripted reply to what is done at the socket: the message, its events, and the faults in between."""
