"""Programs that measure Tickwalk beside nothing, beside the kernel's clocks and beside other profilers; see __main__.py."""
