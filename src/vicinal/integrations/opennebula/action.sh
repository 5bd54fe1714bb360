#!/bin/bash
# Vicinal's variant of an action of OpenNebula's KVM driver, made by `vicinal opennebula install`.
source "$(dirname -- "$0")/../../etc/vmm/kvm/kvmrc"
export LIBVIRT_URI
exec @PYTHON@ -I -m vicinal.integrations.opennebula.driver "$0" "$@"
