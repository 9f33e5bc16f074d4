"""What programs use: captured handles, mailboxes, and calls by name."""
