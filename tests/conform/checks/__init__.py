"""The checks, in the order of a session."""
from checks import session, mail, rcpt, data, smuggling, pipelining, chunking, extensions, tls, replies  # noqa: F401
