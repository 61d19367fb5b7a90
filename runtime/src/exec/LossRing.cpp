#include "LossRing.h"

#include <cmath>
#include <string>

namespace pdcrt {

static double scalar(Element element, const std::byte* at) {
  return element == Element::f64 ? *reinterpret_cast<const double*>(at) : *reinterpret_cast<const float*>(at);
}

void LossRing::resize(std::size_t places) {
  losses_ = std::vector<Pending>(places);
  memory_ = HostMemory(places * sizeof(double));
}

Status LossRing::begin(Stream& q, int stage, const OutputRow& row, std::int64_t minibatch, const std::byte* slot,
                       RunObserver* observer) {
  if (begun_ - told_ == losses_.size())
    if (Status status = tell(/*all=*/true, observer); !status) return status;
  const std::size_t place = begun_++ % losses_.size();
  Pending& loss = losses_[place];
  loss.stage = stage;
  loss.term = row.kind == OutputKind::term ? row.name : nullptr;
  loss.element = row.element;
  loss.minibatch = minibatch;
  device::copy(q, memory_.data() + place * sizeof(double), slot + row.offset, bytesOf(row.element));
  loss.copied.record(q);
  return {};
}

Status LossRing::tell(bool all, RunObserver* observer) {
  for (; told_ < begun_; ++told_) {
    const std::size_t place = told_ % losses_.size();
    const Pending& pending = losses_[place];
    if (all)
      pending.copied.wait();
    else if (!pending.copied.passed())
      return {};
    const double loss = scalar(pending.element, memory_.data() + place * sizeof(double));
    if (pending.term) {
      if (observer) observer->term(pending.stage, pending.term, pending.minibatch, loss);
      continue;
    }
    if (!std::isfinite(loss))
      return {Exit::lossNotFinite,
              "the loss of minibatch " + std::to_string(pending.minibatch) + " is " + std::to_string(loss),
              "lower the learning rate, or look for values in the data that are not finite"};
    if (observer) observer->loss(pending.stage, pending.minibatch, loss);
  }
  return {};
}

} // namespace pdcrt
