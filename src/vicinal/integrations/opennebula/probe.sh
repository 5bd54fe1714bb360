#!/bin/bash
# What Vicinal has on this host, for OpenNebula's scheduler, made by `vicinal opennebula install`.
# A probe that fails, or hangs, would end all monitoring of the host: this one does neither.
remotes="$(dirname -- "$0")/../../../.."
timeout -k 5 20 @PYTHON@ -I -m vicinal.integrations.opennebula.probe "$remotes" </dev/null 2>/dev/null ||
	echo 'VICINAL_ERROR="the probe im/kvm-probes.d/host/system/vicinal did not end well: run it on this host"'
exit 0
