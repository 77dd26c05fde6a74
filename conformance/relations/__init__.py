"""Relations between calls, and what must be conserved within one."""
