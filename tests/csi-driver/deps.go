//go:build sanity

package main

// Keeps in the module graph the program that checks this driver. Nothing here is ever compiled; the tag is never set.
import _ "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"
