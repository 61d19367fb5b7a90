#!/bin/sh
# A launcher that says why it starts nothing.
cat >&2 <<'EOF'
[host:1] starting daemons
--------------------------------------------------------------------------
There are not enough slots available in the system to satisfy the 2
slots that were requested by the application.
--------------------------------------------------------------------------
EOF
exit 213
