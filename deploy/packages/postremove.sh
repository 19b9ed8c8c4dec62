#!/bin/sh
# The user stays, as files of its own may: dpkg's policy, and rpm's.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
