"""Virtual clusters: several isolated nodes on one host."""
