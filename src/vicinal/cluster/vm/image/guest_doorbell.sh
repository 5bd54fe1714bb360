# guest_doorbell.sh - sourced by guest_init.sh in a guest whose region's device sends interrupts: binds the
# device to vfio-pci, and starts the agent that passes its interrupts to the ranks.
for module in /usr/lib/vicinal-doorbell/modules/*; do
	insmod "$module" || give_up "the module $module could not be loaded"
done
device=
for each in /sys/bus/pci/devices/*; do
	[ "$(cat "$each/vendor" "$each/device" | tr '\n' ' ')" = "0x1af4 0x1110 " ] && device=${each##*/}
done
[ -n "$device" ] || give_up "there is no ivshmem device"
[ -x /usr/lib/vicinal-doorbell/agent ] || give_up "the image has no agent for doorbells: build the provider"
# No driver of the kernel knows the device. Only vfio-pci passes interrupts to programs.
echo vfio-pci >"/sys/bus/pci/devices/$device/driver_override"
echo "$device" >/sys/bus/pci/drivers_probe
[ -e "/sys/bus/pci/drivers/vfio-pci/$device" ] ||
	give_up "vfio-pci did not bind the device $device: has the guest an IOMMU?"
/usr/lib/vicinal-doorbell/agent "$device" mpi >/dev/console 2>&1 &
agent=$!
until [ -S "/run/vicinal/doorbell-$device" ]; do
	kill -0 "$agent" 2>/dev/null || give_up "the agent for doorbells ended"
	sleep 0.1
done
