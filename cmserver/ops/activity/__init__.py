"""What goes on in a project: days, kinds and files, for its page and for `cmserver projects activity`."""
