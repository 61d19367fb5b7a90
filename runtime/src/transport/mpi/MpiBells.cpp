#include "MpiBells.h"

#include <new>
#include <utility>

namespace pdcrt {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "the counters are shared between processes");

std::unique_ptr<MpiBells> MpiBells::open(MPI_Comm host) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(host, &rank);
  MPI_Comm_size(host, &ranks);
  const auto count = static_cast<std::size_t>(ranks) * counters;
  void* own = nullptr;
  MPI_Win memory = MPI_WIN_NULL;
  const auto bytes = static_cast<MPI_Aint>(sizeof(Bell) + count * sizeof(std::atomic<std::uint32_t>));
  const int here =
      MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, host, static_cast<void*>(&own), &memory) == MPI_SUCCESS;
  int everywhere = 0;
  if (here) {
    Bell* bell = new (own) Bell;
    for (std::size_t i = 0; i < count; ++i) new (bell->sent() + i) std::atomic<std::uint32_t>(0);
  }
  MPI_Allreduce(&here, &everywhere, 1, MPI_INT, MPI_MIN, host); // and nobody rings before all bells are there
  if (!everywhere) {
    if (memory != MPI_WIN_NULL) MPI_Win_free(&memory);
    return nullptr;
  }
  std::vector<Bell*> bells;
  for (int of = 0; of < ranks; ++of) {
    MPI_Aint size = 0;
    int unit = 0;
    void* address = nullptr;
    MPI_Win_shared_query(memory, of, &size, &unit, static_cast<void*>(&address));
    bells.push_back(static_cast<Bell*>(address));
  }
  return std::unique_ptr<MpiBells>(new MpiBells(memory, rank, std::move(bells)));
}

MpiBells::MpiBells(MPI_Win memory, int rank, std::vector<Bell*> bells)
    : memory_(memory), rank_(rank), bells_(std::move(bells)), received_(bells_.size() * counters) {}

MpiBells::~MpiBells() {
  MPI_Win_free(&memory_); // waits for all ranks: the last ring is over
}

void MpiBells::ring(int rank) {
  bells_[static_cast<std::size_t>(rank)]->notify();
}

void MpiBells::sent(int rank, int channel) {
  bells_[static_cast<std::size_t>(rank)]->sent()[counterOf(rank_, channel)].fetch_add(1, std::memory_order_release);
  ring(rank);
}

void MpiBells::received(int rank, int channel) {
  ++received_[counterOf(rank, channel)];
  ring(rank); // who has sent it may go on
}

bool MpiBells::arrives(int rank, int channel) const {
  const std::size_t counter = counterOf(rank, channel);
  const std::uint32_t sent = bells_[static_cast<std::size_t>(rank_)]->sent()[counter].load(std::memory_order_acquire);
  return static_cast<std::int32_t>(sent - received_[counter]) > 0; // what is counted late may have been received
}

} // namespace pdcrt
