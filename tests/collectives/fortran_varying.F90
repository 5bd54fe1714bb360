! SPDX-License-Identifier: BSD-3-Clause
!
! fortran_varying.F90 - collective operations with a count for each rank, as Fortran programs call them: by
! `use mpi`, with -DWITH_MPIF by mpif.h, or with -DWITH_F08 by `use mpi_f08`.
!
! Counts differ, some are 0, and blocks lie apart. A wrong result ends the program with status 1; otherwise each
! rank prints "rank N: good".
module varying_steps
#if defined(WITH_F08)
  use mpi_f08
#elif !defined(WITH_MPIF)
  use mpi
#endif
  implicit none
#ifdef WITH_MPIF
  include 'mpif.h'
#endif
  integer :: rank, ranks, error
  integer, parameter :: untouched = -1
contains

  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (good) return
    write (0, '(a, a, a, i0)') 'wrong: ', what, ' in Fortran, rank ', rank
    stop 1
  end subroutine check

  ! The value of an element that rank `from` sends to rank `to`.
  elemental integer function input(from, to, i)
    integer, intent(in) :: from, to, i
    input = 1000000 * from + 100000 * to + i
  end function input

  ! Elements that rank `from` sends to rank `to`: also none.
  elemental integer function length(n, from, to)
    integer, intent(in) :: n, from, to
    length = merge(0, n + from + 2 * to, mod(from + to, 3) == 2)
  end function length

  ! Displacements of blocks that lie `gap` elements apart.
  function behind(counts, gap) result(places)
    integer, intent(in) :: counts(0:), gap
    integer :: places(0:size(counts) - 1), r
    places(0) = gap
    do r = 1, size(counts) - 1
      places(r) = places(r - 1) + counts(r - 1) + gap
    end do
  end function behind

  ! Does a buffer have the blocks that all ranks sent to `to`, and nothing else?
  logical function has_blocks(buffer, counts, places, to)
    integer, intent(in) :: buffer(0:), counts(0:), places(0:), to
    integer :: expected(0:size(buffer) - 1), r, i
    expected = untouched
    do r = 0, ranks - 1
      expected(places(r):places(r) + counts(r) - 1) = [(input(r, to, i), i = 1, counts(r))]
    end do
    has_blocks = all(buffer == expected)
  end function has_blocks

  subroutine gathers(n)
    integer, intent(in) :: n
    integer :: r, i, root, counts(0:ranks - 1), places(0:ranks - 1)
    integer, allocatable :: mine(:), all_blocks(:)
    root = mod(n, ranks)
    counts = [(length(n, r, root), r = 0, ranks - 1)]
    places = behind(counts, 3)
    mine = [(input(rank, root, i), i = 1, counts(rank))]
    allocate (all_blocks(0:sum(counts) + 3 * ranks))
    all_blocks = untouched
    call MPI_Allgatherv(mine, counts(rank), MPI_INTEGER, all_blocks, counts, places, MPI_INTEGER, MPI_COMM_WORLD, &
                        error)
    call check(has_blocks(all_blocks, counts, places, root), 'allgatherv')
    all_blocks = untouched
    all_blocks(places(rank):places(rank) + counts(rank) - 1) = mine
    call MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_INTEGER, all_blocks, counts, places, MPI_INTEGER, MPI_COMM_WORLD, error)
    call check(has_blocks(all_blocks, counts, places, root), 'allgatherv in place')
    all_blocks = untouched
    call MPI_Gatherv(mine, counts(rank), MPI_INTEGER, all_blocks, counts, places, MPI_INTEGER, root, &
                     MPI_COMM_WORLD, error)
    if (rank == root) then
      call check(has_blocks(all_blocks, counts, places, root), 'gatherv')
    else
      call check(all(all_blocks == untouched), 'gatherv, receive buffer of another rank than the root')
    end if
    all_blocks = untouched
    if (rank == root) then
      all_blocks(places(rank):places(rank) + counts(rank) - 1) = mine
      call MPI_Gatherv(MPI_IN_PLACE, 0, MPI_INTEGER, all_blocks, counts, places, MPI_INTEGER, root, &
                       MPI_COMM_WORLD, error)
      call check(has_blocks(all_blocks, counts, places, root), 'gatherv in place')
    else
      call MPI_Gatherv(mine, counts(rank), MPI_INTEGER, all_blocks, counts, places, MPI_INTEGER, root, &
                       MPI_COMM_WORLD, error)
    end if
  end subroutine gathers

  ! The blocks that this rank sends, as a scatter of a root and an alltoall have them.
  function blocks_to_all(counts, places) result(blocks)
    integer, intent(in) :: counts(0:), places(0:)
    integer, allocatable :: blocks(:)
    integer :: r, i
    allocate (blocks(0:places(ranks - 1) + counts(ranks - 1)))
    blocks = untouched
    do r = 0, ranks - 1
      blocks(places(r):places(r) + counts(r) - 1) = [(input(rank, r, i), i = 1, counts(r))]
    end do
  end function blocks_to_all

  subroutine scatters(n)
    integer, intent(in) :: n
    integer :: r, i, root, sent(0:ranks - 1), places(0:ranks - 1), room
    integer, allocatable :: blocks(:), got(:)
    root = mod(n + 1, ranks)
    sent = [(length(n, root, r), r = 0, ranks - 1)]
    places = behind(sent, 2)
    blocks = blocks_to_all(sent, places)
    room = sent(rank)
    allocate (got(room))
    got = untouched
    call MPI_Scatterv(blocks, sent, places, MPI_INTEGER, got, room, MPI_INTEGER, root, MPI_COMM_WORLD, error)
    call check(all(got == [(input(root, rank, i), i = 1, room)]), 'scatterv')
    got = untouched
    if (rank == root) then
      call MPI_Scatterv(blocks, sent, places, MPI_INTEGER, MPI_IN_PLACE, 0, MPI_INTEGER, root, MPI_COMM_WORLD, error)
    else
      call MPI_Scatterv(blocks, sent, places, MPI_INTEGER, got, room, MPI_INTEGER, root, MPI_COMM_WORLD, error)
      call check(all(got == [(input(root, rank, i), i = 1, room)]), 'scatterv in place at the root')
    end if
  end subroutine scatters

  subroutine exchanges(n)
    integer, intent(in) :: n
    integer :: r, sent(0:ranks - 1), sent_places(0:ranks - 1), got(0:ranks - 1), got_places(0:ranks - 1)
    integer, allocatable :: blocks(:), received(:)
    sent = [(length(n, rank, r), r = 0, ranks - 1)]
    sent_places = behind(sent, 2)
    got = [(length(n, r, rank), r = 0, ranks - 1)]
    got_places = behind(got, 5)
    blocks = blocks_to_all(sent, sent_places)
    allocate (received(0:sum(got) + 5 * ranks))
    received = untouched
    call MPI_Alltoallv(blocks, sent, sent_places, MPI_INTEGER, received, got, got_places, MPI_INTEGER, &
                       MPI_COMM_WORLD, error)
    call check(has_blocks(received, got, got_places, rank), 'alltoallv')
  end subroutine exchanges

  subroutine reductions(n)
    integer, intent(in) :: n
    integer :: r, i, first, counts(0:ranks - 1)
    integer, allocatable :: mine(:), got(:), expected(:)
    counts = [(length(n, r, r), r = 0, ranks - 1)]
    mine = [(input(rank, 0, i), i = 1, sum(counts))]
    first = sum(counts(0:rank - 1))
    expected = [(sum([(input(r, 0, first + i), r = 0, ranks - 1)]), i = 1, counts(rank))]
    allocate (got(counts(rank)))
    got = untouched
    call MPI_Reduce_scatter(mine, got, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call check(all(got == expected), 'reduce_scatter')
    call MPI_Reduce_scatter(MPI_IN_PLACE, mine, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call check(all(mine(1:counts(rank)) == expected), 'reduce_scatter in place')
  end subroutine reductions
end module varying_steps

program fortran_varying
  use varying_steps
  implicit none
  integer, parameter :: lengths(6) = [1, 7, 90, 500, 4000, 60000]
  integer :: i
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  do i = 1, size(lengths)
    call gathers(lengths(i))
    call scatters(lengths(i))
    call exchanges(lengths(i))
    call reductions(lengths(i))
  end do
  print '(a, i0, a)', 'rank ', rank, ': good'
  call MPI_Finalize(error)
end program fortran_varying
