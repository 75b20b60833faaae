// How does the thread of an NVMe file work? It keeps the queue full, and looks at every result.
#include "memory/detail/nvme_engine.hpp"

#include "core/hash.hpp"
#include "memory/gauge.hpp"
#include "memory/host_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <source_location>
#include <span>
#include <utility>

namespace colossal::detail {
namespace {

/// A disk that moves nothing this often in a row has stopped working.
constexpr int kMaxIdleTries = 100;

std::uint32_t checksum_of(const NvmeTransfer& transfer) {
  return crc32c({transfer.data, static_cast<std::size_t>(transfer.bytes)});
}

bool is_passing(std::int64_t result) {
  return result == -EINTR || result == -EAGAIN || result == -EBUSY;
}

}  // namespace

NvmeEngine::NvmeEngine(Descriptor file,
                       std::unique_ptr<DiskQueue> queue,
                       std::vector<NvmeSlot> slots,
                       std::string path)
    : file_(std::move(file)),
      slots_(std::move(slots)),
      path_(std::move(path)),
      queue_(std::move(queue)),
      last_(slots_.size()),
      thread_([this] { run(); }) {}

NvmeEngine::~NvmeEngine() {
  {
    const std::lock_guard lock(shared_->mutex);
    stopping_ = true;
  }
  to_do_.notify_one();
  thread_.join();
  gauge(MemoryKind::nvme).remove(file_bytes);
}

std::shared_ptr<NvmeTransfer> NvmeEngine::start(NvmeTransfer given) {
  auto transfer = std::make_shared<NvmeTransfer>(std::move(given));
  transfer->shared = shared_;
  std::unique_lock lock(shared_->mutex);
  TransferPtr* last =
      transfer->slot >= 0 ? &last_[static_cast<std::size_t>(transfer->slot)] : nullptr;
  if (last != nullptr && *last != nullptr) {
    shared_->done.wait(lock, [&] { return (*last)->done; });
  }
  if (shared_->broken) {
    throw Error(*shared_->broken);
  }
  if (last != nullptr) {
    *last = transfer;
  }
  new_.push_back(transfer);
  to_do_.notify_one();
  return transfer;
}

void NvmeEngine::run() {
  while (take_new()) {
    try {
      turn();
    } catch (const Error& error) {
      fail_all(error);
    }
  }
}

void NvmeEngine::turn() {
  submit();
  if (!under_way_.empty()) {
    end_piece(queue_->wait());
  }
}

bool NvmeEngine::take_new() {
  std::unique_lock lock(shared_->mutex);
  const bool idle = waiting_.empty() && under_way_.empty();
  if (idle) {
    to_do_.wait(lock, [this] { return stopping_ || !new_.empty(); });
  }
  const std::deque<TransferPtr> taken = std::exchange(new_, {});
  const std::optional<Error> broken = shared_->broken;
  if (idle && taken.empty()) {
    return false;
  }
  lock.unlock();
  for (const TransferPtr& transfer : taken) {
    if (broken) {
      finish(transfer, broken);  // it came before its caller could know
    } else {
      begin(transfer);
    }
  }
  return true;
}

void NvmeEngine::begin(const TransferPtr& transfer) {
  NvmeTransfer& t = *transfer;
  if (t.slot >= 0) {
    NvmeSlot& slot = slots_[static_cast<std::size_t>(t.slot)];
    if (!t.write && !slot.written) {
      std::memset(t.data, 0, static_cast<std::size_t>(t.bytes));
      finish(transfer, std::nullopt);
      return;
    }
    if (t.write) {
      slot.written = true;
      slot.checksum = checksum_of(t);
    }
  }
  for (std::int64_t at = 0; at < t.on_disk; at += kNvmePiece) {
    ++t.left;
    waiting_.push_back({.request = {.id = 0,
                                    .write = t.write,
                                    .offset = t.offset + at,
                                    .data = t.data + at,
                                    .bytes = std::min(kNvmePiece, t.on_disk - at)},
                        .transfer = transfer});
  }
  if (t.left == 0) {
    finish(transfer, std::nullopt);  // an empty slot
  }
}

void NvmeEngine::submit() {
  while (!waiting_.empty()) {
    Piece& piece = waiting_.front();
    piece.request.id = next_id_;
    if (!queue_->submit(piece.request)) {
      return;
    }
    under_way_.emplace(next_id_++, std::move(piece));
    waiting_.pop_front();
  }
}

void NvmeEngine::end_piece(const DiskResult& result) {
  const auto found = under_way_.find(result.id);
  if (found == under_way_.end()) {
    return;  // given up by fail_all()
  }
  Piece piece = std::move(found->second);
  under_way_.erase(found);
  DiskRequest& request = piece.request;
  if (result.result == request.bytes) {
    count_down(piece.transfer);
    return;
  }
  if (result.result < 0 && !is_passing(result.result)) {
    give_up_piece(piece, std::strerror(static_cast<int>(-result.result)));
    return;
  }
  // A short transfer goes on where whole pages ended: direct access needs that.
  const std::int64_t moved = std::max<std::int64_t>(0, result.result) / kHostPage * kHostPage;
  piece.idle_tries = moved > 0 ? 0 : piece.idle_tries + 1;
  if (piece.idle_tries > kMaxIdleTries) {
    give_up_piece(piece, "it moves no more bytes");
    return;
  }
  request.offset += moved;
  request.data += moved;
  request.bytes -= moved;
  waiting_.push_front(std::move(piece));
}

void NvmeEngine::give_up_piece(const Piece& piece, const std::string& why) {
  const DiskRequest& request = piece.request;
  const Error error(
      ErrorKind::environment,
      "nvme-io",
      fmt::format("{} {} bytes at {} of {} failed: {}\n  fix   look at the disk and at "
                  "the system's log; the same command continues from the last "
                  "checkpoint, on another disk if parallel.gemini.nvme.path names one",
                  request.write ? "writing" : "reading",
                  request.bytes,
                  request.offset,
                  place_of(*piece.transfer),
                  why),
      std::source_location::current());
  {
    const std::lock_guard lock(shared_->mutex);
    std::optional<Error>& first = piece.transfer->error;
    first = first ? first : error;
  }
  count_down(piece.transfer);
}

void NvmeEngine::count_down(const TransferPtr& transfer) {
  if (--transfer->left == 0) {
    finish(transfer, checksum_error(*transfer));
  }
}

void NvmeEngine::finish(const TransferPtr& transfer, std::optional<Error> error) {
  {
    const std::lock_guard lock(shared_->mutex);
    transfer->error = transfer->error ? transfer->error : std::move(error);
    transfer->done = true;
    transfer->memory.reset();  // the engine still knows the transfer as the last of its slot
    shared_->broken = shared_->broken ? shared_->broken : transfer->error;
  }
  shared_->done.notify_all();
}

void NvmeEngine::fail_all(const Error& error) {
  // What the queue still has is lost with it: nobody may wait for it.
  for (const Piece& piece : waiting_) {
    finish(piece.transfer, error);
  }
  for (const auto& [id, piece] : under_way_) {
    finish(piece.transfer, error);
  }
  waiting_.clear();
  under_way_.clear();
}

std::optional<Error> NvmeEngine::checksum_error(const NvmeTransfer& transfer) const {
  if (transfer.write || transfer.slot < 0 || transfer.error) {
    return std::nullopt;
  }
  const std::uint32_t wanted = slots_[static_cast<std::size_t>(transfer.slot)].checksum;
  const std::uint32_t found = checksum_of(transfer);
  if (found == wanted) {
    return std::nullopt;
  }
  return Error(ErrorKind::environment,
               "nvme-checksum",
               fmt::format("{} came back with checksum {:08x}, written was {:08x}: the disk or its "
                           "cable changes bytes\n  fix   use another disk "
                           "(parallel.gemini.nvme.path); the same command continues from the last "
                           "checkpoint",
                           place_of(transfer),
                           found,
                           wanted),
               std::source_location::current());
}

std::string NvmeEngine::place_of(const NvmeTransfer& transfer) const {
  return transfer.slot < 0 ? path_ : fmt::format("slot {} of {}", transfer.slot, path_);
}

}  // namespace colossal::detail
