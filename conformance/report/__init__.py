"""What a run found, for people: one HTML file (:mod:`.render`) and the terminal's lines (:mod:`.terminal`)."""
