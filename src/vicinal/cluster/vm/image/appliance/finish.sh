# finish.sh ROOT - turns the new Debian in ROOT into an appliance, and writes it to the disk.
#
# mmdebstrap runs it as one of its hooks, as root; for unprivileged users this is the root of a user
# namespace. Variables from the caller: VICINAL_DISK, the offset and size of the root file system in the
# disk in bytes (VICINAL_OFFSET, VICINAL_SIZE), and the file system's identifiers (VICINAL_UUID,
# VICINAL_HASH_SEED).
set -eu
root=$1

step() { echo "I: vicinal: $*" >&2; }

step "configuring the appliance"
chroot "$root" groupadd --system --force mpi
ours=$root/usr/lib/vicinal
python=$(chroot "$root" python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
mkdir -p "$ours/bin" "$ours/lib/$python"
ln -s /usr/bin/python3 "$ours/bin/python3"
mv "$ours/site-packages" "$ours/lib/$python/"
chroot "$root" /usr/lib/vicinal/bin/python3 -m compileall -q "/usr/lib/vicinal/lib/$python"
# Compiled modules belong to the Python version that runs vicinal on the host.
if ! chroot "$root" /usr/lib/vicinal/bin/python3 -c 'import jsonschema, psutil, rich, ruamel.yaml, vicinal.cli'; then
	echo "E: vicinal: the libraries of the Python that runs vicinal do not work with the appliance's $python" >&2
	exit 1
fi
chroot "$root" systemctl --quiet enable \
	ssh systemd-networkd systemd-resolved systemd-timesyncd vicinal-context vicinal-first-boot
# Debian's Open MPI excludes libfabric. Here libfabric is used if FI_PROVIDER admits Vicinal. The user
# decides that; etc/environment excludes Vicinal.
parameters=$root/etc/openmpi/openmpi-mca-params.conf
sed -i -E '/^(mtl|btl) *=/d' "$parameters"
printf '\nbtl = ^uct,openib\nmtl_ofi_provider_include = vicinal\nbtl_ofi_provider_include = vicinal\n' \
	>>"$parameters"
kernel=$(basename "$(readlink "$root/vmlinuz")")
[ -s "$root/boot/$kernel" ] && [ -s "$root/initrd.img" ]

# Remove what each VM creates for itself, and what only the build needed.
rm -f "$root"/etc/ssh/ssh_host_*_key* "$root/etc/apt/apt.conf.d/00mmdebstrap" \
	"$root/etc/apt/apt.conf.d/99mmdebstrap" "$root/var/lib/systemd/random-seed"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/tmp/*
find "$root/var/log" -type f -delete
: >"$root/etc/machine-id"
rm -f "$root/var/lib/dbus/machine-id"
echo vicinal >"$root/etc/hostname"
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
ln -sf ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
printf 'UUID=%s / ext4 errors=remount-ro 0 1\n' "$VICINAL_UUID" >"$root/etc/fstab"
mkdir -p "$root/boot/grub"
cat >"$root/boot/grub/grub.cfg" <<GRUB
# Written once, when the appliance was built. A kernel that is installed later has the same names, and
# the kernel before it has the names with .old.
set timeout=1
serial --unit=0 --speed=115200
terminal_input console serial
terminal_output console serial
menuentry "Debian with Vicinal" {
	linux /vmlinuz root=UUID=$VICINAL_UUID ro console=tty0 console=ttyS0,115200
	initrd /initrd.img
}
menuentry "Debian with Vicinal, the previous kernel" {
	linux /vmlinuz.old root=UUID=$VICINAL_UUID ro console=tty0 console=ttyS0,115200
	initrd /initrd.img.old
}
GRUB

step "writing the file system"
# Only files of the disk, without /proc and other file systems that mmdebstrap has mounted.
plain=$root/mnt
mount --bind "$root" "$plain"
# GRUB 2.06 cannot read file systems with a separate checksum seed.
mke2fs -q -t ext4 -d "$plain" -L vicinal -U "$VICINAL_UUID" -m 1 \
	-O ^metadata_csum_seed,^orphan_file \
	-E "offset=$VICINAL_OFFSET,hash_seed=$VICINAL_HASH_SEED,root_owner=0:0" \
	"$VICINAL_DISK" "$((VICINAL_SIZE >> 10))k"
umount "$plain"
