#!/bin/sh
# dpkg says "remove" or "upgrade", rpm how many versions stay: 0 or more. An upgrade stops
# nothing.
set -e
case "${1:-}" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now leafd.service spined.service loomweb.service
	fi
	;;
esac
