#!/bin/bash
# Networks whose NICs are SR-IOV VFs, made by `vicinal opennebula install`.
source "$(dirname -- "$0")/../../etc/vmm/kvm/kvmrc"
export LIBVIRT_URI
exec @PYTHON@ -I -m vicinal.integrations.opennebula.network "$0" "$@"
