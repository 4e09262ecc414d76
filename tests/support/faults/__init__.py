"""Parts of a machine that a test can break around howdah: file systems and clocks."""
