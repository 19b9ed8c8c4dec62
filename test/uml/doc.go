// Package uml runs tests of control and control/bridge on a kernel that has VLAN filtering,
// VRFs and bonds, as not every machine's has: User Mode Linux, which is a program. See
// README.md; `make test-uml` runs it. Its tests are built with the tag uml, since they
// download that kernel, and so are those that it runs.
package uml
