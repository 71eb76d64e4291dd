"""What was found, as plain numbers: reports, their JSON, and what they say."""
