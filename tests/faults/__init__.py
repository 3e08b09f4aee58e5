"""Faults: files damaged, inputs and settings that make no sense, signals and full disks, and the rule for all."""
