// See GradientNorm.h.
#include "GradientNorm.h"

#include <cmath>

namespace pdcrt {
namespace {

constexpr int lowestExponent = -352; // below the last bit of a double that is 2^-298 or more
constexpr std::uint64_t lowHalf = 0xffffffff;

} // namespace

void ExactSum::add(double value) {
  if (value == 0) return;
  if (!(value < std::ldexp(1.0, 400))) {
    ++words_.back();
    return;
  }
  int exponent = 0;
  const auto digits = static_cast<std::uint64_t>(std::ldexp(std::frexp(value, &exponent), 53));
  const int place = exponent - 53 - lowestExponent;
  if (place < 0) return; // no sum of squares of floats
  const auto word = static_cast<std::size_t>(place / 32);
  const int shift = place % 32;
  // The digits shifted left, in three words of 32 bits.
  const std::uint64_t low = (digits & lowHalf) << shift, high = (digits >> 32) << shift;
  const std::uint64_t middle = (low >> 32) + (high & lowHalf);
  words_[word] += low & lowHalf;
  words_[word + 1] += middle & lowHalf;
  words_[word + 2] += (high >> 32) + (middle >> 32);
}

void ExactSum::add(const ExactSum& other) {
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] += other.words_[i];
}

double ExactSum::value() const {
  std::array<std::uint64_t, 25> digits = words_;
  for (std::size_t i = 0; i + 2 < digits.size(); ++i) {
    digits[i + 1] += digits[i] >> 32;
    digits[i] &= lowHalf;
  }
  double sum = 0;
  for (std::size_t i = digits.size() - 1; i-- > 0;)
    sum += std::ldexp(static_cast<double>(digits[i]), 32 * static_cast<int>(i) + lowestExponent);
  return sum;
}

GradientNorm::GradientNorm(NormGroup group) : group_(std::move(group)) {
  const bool first = group_.self == 0;
  parts_.resize(first ? group_.ranks.size() : 0);
  answers_.resize(parts_.size());
  transfers_.resize(first ? group_.ranks.size() : 2);
}

/// A transfer with another participant; `back`: of the sum.
void GradientNorm::add(std::size_t peer, bool outgoing, bool back, std::byte* data) {
  Transfer& transfer = transfers_.parts[transfers_.used++];
  transfer.outgoing = outgoing;
  transfer.peer = group_.ranks[peer];
  transfer.channel = group_.channel + 2 * static_cast<int>(group_.self == 0 ? peer : group_.self) + (back ? 1 : 0);
  transfer.data = data;
  transfer.bytes = back ? answerBytes() : ExactSum::byteCount();
  transfer.traffic = Traffic::allReduce;
}

void GradientNorm::gather() {
  transfers_.used = 0;
  if (group_.self > 0) {
    if (group_.counts[group_.self]) add(0, /*outgoing=*/true, /*back=*/false, sum.bytes());
    add(0, /*outgoing=*/false, /*back=*/true, total_[0].bytes());
    return;
  }
  for (std::size_t peer = 1; peer < group_.ranks.size(); ++peer)
    if (group_.counts[peer]) add(peer, /*outgoing=*/false, /*back=*/false, parts_[peer].bytes());
}

void GradientNorm::spread() {
  parts_[0] = sum;
  const auto sumOf = [&](auto matches) {
    ExactSum all;
    for (std::size_t peer = 0; peer < group_.ranks.size(); ++peer)
      if (group_.counts[peer] && matches(peer)) all.add(parts_[peer]);
    return all;
  };
  sum = sumOf([](std::size_t) { return true; });
  transfers_.used = 0;
  for (std::size_t peer = 0; peer < group_.ranks.size(); ++peer) {
    Answer& answer = answers_[peer];
    answer[0] = sum;
    if (!group_.stages.empty())
      answer[1] = sumOf([&](std::size_t other) { return group_.stages[other] == group_.stages[peer]; });
    if (peer > 0) add(peer, /*outgoing=*/true, /*back=*/true, answer[0].bytes());
  }
  total_ = answers_[0];
}

bool GradientNorm::advance(Transport& transport) {
  if (!started_) {
    started_ = true;
    gather();
  }
  if (!transfers_.advance(transport)) return false;
  if (group_.self > 0) {
    sum = total_[0];
    return true;
  }
  if (phase_ == Phase::spreading) return true;
  phase_ = Phase::spreading;
  spread();
  return transfers_.advance(transport);
}

} // namespace pdcrt
