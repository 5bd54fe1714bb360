! SPDX-License-Identifier: BSD-3-Clause
!
! fortran.F90 - collective operations as Fortran programs call them: by `use mpi`, or with -DWITH_MPIF by mpif.h.
!
! Fortran's MPI_IN_PLACE and MPI_BOTTOM are variables at addresses that C does not use, and a LOGICAL is true by a
! word that only Fortran knows. A wrong result ends the program with status 1; otherwise each rank prints
! "rank N: good".
module steps
#ifndef WITH_MPIF
  use mpi
#endif
  implicit none
#ifdef WITH_MPIF
  include 'mpif.h'
#endif
  integer :: rank, ranks, error
contains

  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (good) return
    write (0, '(a, a, a, i0)') 'wrong: ', what, ' in Fortran, rank ', rank
    stop 1
  end subroutine check

  ! The value of an element that a rank sends.
  elemental integer function input(of, i)
    integer, intent(in) :: of, i
    input = 1000 * of + i
  end function input

  integer function total(i)
    integer, intent(in) :: i
    integer :: r
    total = sum([(input(r, i), r = 0, ranks - 1)])
  end function total

  subroutine reductions(n)
    integer, intent(in) :: n
    integer :: i, mine(n), sums(n), root
    real(8) :: numbers(n)
    complex :: product
    logical :: all_true, any_true
    mine = [(input(rank, i), i = 1, n)]
    call MPI_Allreduce(mine, sums, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call check(all(sums == [(total(i), i = 1, n)]), 'allreduce')
    sums = mine
    call MPI_Allreduce(MPI_IN_PLACE, sums, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call check(all(sums == [(total(i), i = 1, n)]), 'allreduce in place')
    numbers = mine
    call MPI_Allreduce(MPI_IN_PLACE, numbers, n, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, error)
    call check(all(numbers == [(input(ranks - 1, i), i = 1, n)]), 'allreduce of real(8)')
    root = mod(n, ranks)
    sums = mine
    if (rank == root) then
      call MPI_Reduce(MPI_IN_PLACE, sums, n, MPI_INTEGER, MPI_SUM, root, MPI_COMM_WORLD, error)
      call check(all(sums == [(total(i), i = 1, n)]), 'reduce in place')
    else
      call MPI_Reduce(mine, sums, n, MPI_INTEGER, MPI_SUM, root, MPI_COMM_WORLD, error)
      call check(all(sums == mine), 'reduce, receive buffer of another rank than the root')
    end if
    call MPI_Allreduce(rank < ranks - 1, all_true, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, error)
    call MPI_Allreduce(rank == ranks - 1, any_true, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, error)
    call check(.not. all_true .and. any_true, 'allreduce of logical')
    call MPI_Allreduce((0.0, 1.0), product, 1, MPI_COMPLEX, MPI_PROD, MPI_COMM_WORLD, error)
    call check(abs(product - (0.0, 1.0)**ranks) < 1e-6, 'allreduce of complex')
  end subroutine reductions

  ! a after b, of functions that multiply by the first word and add the second word.
  subroutine compose(in, inout, length, type)
    integer :: length, type
    integer :: in(2, length), inout(2, length)
    integer :: i
    call check(type /= MPI_DATATYPE_NULL, 'datatype of an operation')
    do i = 1, length
      inout(2, i) = mod(in(2, i) * inout(1, i) + inout(2, i), 1009)
      inout(1, i) = mod(in(1, i) * inout(1, i), 1009)
    end do
  end subroutine compose

  subroutine own_operation(n)
    integer, intent(in) :: n
    integer :: type, operation, i, r, mine(2, n), got(2, n), expected(2, n), next(2, n)
    call MPI_Type_contiguous(2, MPI_INTEGER, type, error)
    call MPI_Type_commit(type, error)
    call MPI_Op_create(compose, .false., operation, error)
    mine = reshape([(mod(input(rank, i), 1009), i = 1, 2 * n)], [2, n])
    call MPI_Allreduce(mine, got, n, type, operation, MPI_COMM_WORLD, error)
    expected = reshape([(mod(input(0, i), 1009), i = 1, 2 * n)], [2, n])
    do r = 1, ranks - 1
      next = reshape([(mod(input(r, i), 1009), i = 1, 2 * n)], [2, n])
      call compose(expected, next, n, type)
      expected = next
    end do
    call check(all(got == expected), 'allreduce by an operation of the program')
    call MPI_Op_free(operation, error)
    call MPI_Type_free(type, error)
  end subroutine own_operation

  subroutine moves(n)
    integer, intent(in) :: n
    integer :: i, r, root, type, lengths(2)
    integer, save :: first(4), second(4)
    integer :: block(n), blocks(n, 0:ranks - 1)
    character(len=5) :: text
    integer(MPI_ADDRESS_KIND) :: places(2)
    root = mod(n + 1, ranks)
    block = -1
    if (rank == root) block = [(input(root, i), i = 1, n)]
    call MPI_Bcast(block, n, MPI_INTEGER, root, MPI_COMM_WORLD, error)
    call check(all(block == [(input(root, i), i = 1, n)]), 'bcast')
    text = merge('words', '     ', rank == root)
    call MPI_Bcast(text, len(text), MPI_CHARACTER, root, MPI_COMM_WORLD, error)
    call check(text == 'words', 'bcast of characters')
    blocks = -1
    blocks(:, rank) = [(input(rank, i), i = 1, n)]
    call MPI_Allgather(MPI_IN_PLACE, n, MPI_INTEGER, blocks, n, MPI_INTEGER, MPI_COMM_WORLD, error)
    call check(all([(all(blocks(:, r) == [(input(r, i), i = 1, n)]), r = 0, ranks - 1)]), 'allgather in place')
    if (rank == root) then
      call MPI_Scatter(blocks, n, MPI_INTEGER, MPI_IN_PLACE, n, MPI_INTEGER, root, MPI_COMM_WORLD, error)
    else
      block = -1
      call MPI_Scatter(blocks, n, MPI_INTEGER, block, n, MPI_INTEGER, root, MPI_COMM_WORLD, error)
      call check(all(block == [(input(rank, i), i = 1, n)]), 'scatter')
    end if
    ! Two variables, by their addresses.
    call MPI_Get_address(first, places(1), error)
    call MPI_Get_address(second, places(2), error)
    lengths = 4
    call MPI_Type_create_hindexed(2, lengths, places, MPI_INTEGER, type, error)
    call MPI_Type_commit(type, error)
    first = merge(3, -1, rank == root)
    second = merge(4, -1, rank == root)
    call MPI_Bcast(MPI_BOTTOM, 1, type, root, MPI_COMM_WORLD, error)
    call MPI_Get_address(first, places(1), error) ! the variables have changed
    call MPI_Get_address(second, places(2), error)
    call check(all(first == 3) .and. all(second == 4), 'bcast from MPI_BOTTOM')
    call MPI_Type_free(type, error)
    call MPI_Barrier(MPI_COMM_WORLD, error)
  end subroutine moves
end module steps

program fortran
  use steps
  implicit none
  integer, parameter :: lengths(5) = [1, 7, 500, 4000, 100000]
  integer :: i
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  do i = 1, size(lengths)
    call reductions(lengths(i))
    call own_operation(lengths(i))
    call moves(lengths(i))
  end do
  print '(a, i0, a)', 'rank ', rank, ': good'
  call MPI_Finalize(error)
end program fortran
