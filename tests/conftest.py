"""What all tests share."""

from reachable import open_to_other_users

open_to_other_users()
