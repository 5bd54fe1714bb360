"""Other hosts: naming them, reaching them, and agents on them."""
