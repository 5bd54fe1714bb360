# guest_verbs.sh - sourced by guest_init.sh in a guest with an SR-IOV card: creates a virtual
# function of the card, and an RDMA device on the VF.
#
# The VF's driver is loaded after the VF's address was set, because it reads the address
# once. The card's driver is loaded before both, because only it can create VFs. PF stands for the
# card, VF for the virtual function.
load_modules() {
	for module in "/usr/lib/vicinal-verbs/$1"/*; do
		insmod "$module" || give_up "the module $module could not be loaded"
	done
}

load_modules card
ip link set eth1 up || give_up "there is no SR-IOV card eth1"
echo 1 >/sys/class/net/eth1/device/sriov_numvfs || give_up "the card created no virtual function"
# By its path, because the shell would use its own `ip`, which does not support VFs.
/usr/bin/ip link set eth1 vf 0 mac "52:54:00:00:02:0$((node + 1))" ||
	give_up "the virtual function got no hardware address"
load_modules vf
vf=$(ls /sys/class/net/eth1/device/virtfn0/net 2>/dev/null)
[ -n "$vf" ] || give_up "the virtual function has no network interface"
ip address add "10.1.$((node + 1 >> 8)).$((node + 1 & 255))/16" dev "$vf" || give_up "$vf got no address"
ip link set "$vf" up || give_up "$vf could not be set up"

load_modules rdma
rdma link add rxe0 type rxe netdev "$vf" || give_up "there is no RDMA on $vf"
waited=0
until grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state; do
	[ "$waited" -lt 600 ] || give_up "the RDMA port on $vf did not become active"
	waited=$((waited + 1))
	sleep 0.1
done
# RDMA pins buffers of unprivileged users in memory. Their logins inherit this limit.
ulimit -l unlimited
say "RDMA device rxe0 on $vf, a virtual function of eth1"
