"""Starting the processes of a run on machines; imports nothing of the other packages."""
