"""The WebGPU kernels, one file each, as package data."""
