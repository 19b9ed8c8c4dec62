package xsk

import "unsafe"

// addressOf returns where b lies.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
