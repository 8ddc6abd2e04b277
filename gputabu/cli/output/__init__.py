"""What commands leave behind: summaries, folders, reports."""
