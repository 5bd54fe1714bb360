/* SPDX-License-Identifier: BSD-3-Clause */
/* promises.pml - what must hold when no step is possible any more. */

/* ---- when no step is possible, nothing is lost, and all requests are fulfilled ---- */

/* `i` of `j`, both alive */
inline check_living(i, j)
{
	assert(OF(i, j).state != PEER_FAILED);
	assert(!OF(i, j).switching && !OF(i, j).owes_switched && !OF(i, j).owes_region && !OF(i, j).owes_detach);
	assert(!is_failing_over(i, j));
	/* sent messages have arrived, unless one end was told of an error */
	assert(OF(i, j).sent == MESSAGES || !is_talking(i, j));
	assert(OF(j, i).got == OF(i, j).sent || OF(j, i).told || OF(i, j).failover == FAILOVER_DONE);
	if
	:: OF(i, j).failover == FAILOVER_DONE
	:: else ->
		/* members that have both come back in OTHER meet there, and send through that region */
		assert(!(elsewhere[i] && elsewhere[j]) || OF(i, j).attachment == OTHER);
		/* members that have stayed in HOME meet there again */
		assert(left[i] || left[j] || requested[i] != ROUTE_REGION || requested[j] != ROUTE_REGION ||
		       OF(i, j).attachment == HOME);
		assert(!OF(i, j).sending ||
		       OF(i, j).network == (OF(i, j).attachment == NOWHERE || wanted(i, j)))
	fi
}

#define has_left(i) (requested[i] != ROUTE_LEAVE || left[i] || evicted[i])

inline check_pair(i, j)
{
	if
	:: dead[i] || i == j
	:: !dead[i] && i != j && dead[j] -> assert(OF(i, j).state == PEER_FAILED && OF(i, j).reported)
	:: !dead[i] && i != j && !dead[j] -> check_living(i, j)
	fi
}
