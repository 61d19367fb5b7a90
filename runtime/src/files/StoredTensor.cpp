// Metadata is accepted only where it is, byte by byte, what this version writes.
#include "pdcrt/StoredTensor.h"

#include "pdcrt/Npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>

namespace pdcrt {
namespace {

constexpr std::string_view extension = ".safetensors", memberWord = ".member", replicaWord = ".replica",
                           orderWord = " order";
constexpr const char* rangesKey = "ranges/";

/// Reads `word` and, behind it, a number. False: `text` does not begin so.
template <class Number>
bool take(std::string_view& text, std::string_view word, Number& number) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

/// Whether no product of dimensions overflows, with elements of 8 bytes.
bool isShape(const Shape& shape) {
  std::int64_t bytes = 8;
  for (int axis = 0; axis < shape.rank; ++axis)
    if (shape.dims[axis] < 0 || __builtin_mul_overflow(bytes, shape.dims[axis], &bytes)) return false;
  return true;
}

std::vector<std::int64_t> dims(const Shape& shape) {
  return {shape.dims, shape.dims + shape.rank};
}

/// Of at most maxRank.
Shape shapeOf(const std::vector<std::int64_t>& dims) {
  Shape shape;
  for (std::int64_t dim : dims) shape.dims[shape.rank++] = dim;
  return shape;
}

std::string text(const Part& part, const std::vector<std::int64_t>& whole) {
  if (part.isWhole()) return "the whole tensor " + toString(whole);
  std::string order = part.order.empty() ? "" : " in the order";
  for (const std::int32_t place : part.order) order += " " + std::to_string(place);
  return "a part of " + std::to_string(part.of) + " of " + toString(whole) + ", along axis " +
         std::to_string(part.axis) + " in " + std::to_string(part.blocks) + (part.blocks == 1 ? " block" : " blocks") +
         order;
}

/// Takes `word` and the number behind it from the end of a name.
void cutOff(std::string& stem, std::string_view word) {
  const std::size_t digits = stem.find_last_not_of("0123456789") + 1;
  if (digits < stem.size() && std::string_view(stem).substr(0, digits).ends_with(word))
    stem.erase(digits - word.size());
}

/// The name of a file of weights without what says of which member it is.
std::string stemOf(const std::string& path) {
  std::string stem = path.ends_with(extension) ? path.substr(0, path.size() - extension.size()) : path;
  cutOff(stem, memberWord);
  return stem;
}

/// The same of an opened one: where replicas divide tensors, their files belong together, too.
std::string stemOf(const SafetensorsFile& file) {
  std::string stem = stemOf(file.path());
  const auto said = file.metadata().lower_bound(rangesKey);
  if (said != file.metadata().end() && said->first.starts_with(rangesKey)) cutOff(stem, replicaWord);
  return stem;
}

constexpr const char* allMembers = "name the folder that holds the files of all members, as the run wrote them";

} // namespace

std::pair<std::string, std::string> partMetadata(const std::string& name, const MemberPart& of, const Shape& whole) {
  std::string text = "axis " + std::to_string(of.part.axis) + " blocks " + std::to_string(of.part.blocks) + " of " +
                     std::to_string(of.part.of) + " member " + std::to_string(of.member) + " shape";
  for (std::int64_t dim : dims(whole)) text += " " + std::to_string(dim);
  if (!of.part.order.empty()) text += orderWord;
  for (const std::int32_t place : of.part.order) text += " " + std::to_string(place);
  return {"part/" + name, text};
}

bool parsePart(const std::string& text, MemberPart& result, Shape& whole) {
  MemberPart of;
  Shape shape;
  std::string_view rest = text;
  if (!take(rest, "axis ", of.part.axis) || !take(rest, " blocks ", of.part.blocks) ||
      !take(rest, " of ", of.part.of) || !take(rest, " member ", of.member) || !rest.starts_with(" shape"))
    return false;
  rest.remove_prefix(std::string_view(" shape").size());
  while (!rest.empty() && !rest.starts_with(orderWord))
    if (shape.rank == maxRank || !take(rest, " ", shape.dims[shape.rank++])) return false;
  std::vector<std::int32_t> order;
  if (!rest.empty()) rest.remove_prefix(orderWord.size());
  while (!rest.empty())
    if (!take(rest, " ", order.emplace_back())) return false;
  of.part.order = order;
  if (!isShape(shape) || of.part.isWhole() || of.part.axis < 0 || of.part.axis >= shape.rank) return false;
  of.part.wholeSize = shape.dims[of.part.axis];
  if (!problemOf(of.part, shape).empty() || of.member < 0 || of.member >= of.part.of ||
      !isShape(localShape(shape, of.part)) || partMetadata("", of, shape).second != text)
    return false;
  if (!order.empty()) of.part.order = keptOrder(order);
  result = of;
  whole = shape;
  return true;
}

std::pair<std::string, std::string> rangesMetadata(const std::string& name, std::span<const ElementRange> ranges,
                                                   const Shape& whole) {
  std::string text = "shape";
  for (std::int64_t dim : dims(whole)) text += " " + std::to_string(dim);
  text += " ranges";
  for (const ElementRange& range : ranges)
    text += " " + std::to_string(range.begin) + "+" + std::to_string(range.count);
  return {rangesKey + name, text};
}

bool parseRanges(const std::string& text, std::vector<ElementRange>& result, Shape& whole) {
  constexpr std::string_view shapeWord = "shape", rangesWord = " ranges";
  std::vector<ElementRange> ranges;
  Shape shape;
  std::string_view rest = text;
  if (!rest.starts_with(shapeWord)) return false;
  rest.remove_prefix(shapeWord.size());
  while (!rest.starts_with(rangesWord))
    if (shape.rank == maxRank || !take(rest, " ", shape.dims[shape.rank++])) return false;
  rest.remove_prefix(rangesWord.size());
  if (!isShape(shape)) return false;
  std::int64_t end = 0; // of the range before
  while (!rest.empty()) {
    ElementRange& range = ranges.emplace_back();
    if (!take(rest, " ", range.begin) || !take(rest, "+", range.count) || range.begin < end || range.count < 1 ||
        range.count > shape.elements() - range.begin)
      return false;
    end = range.begin + range.count;
  }
  if (ranges.empty() || rangesMetadata("", ranges, shape).second != text) return false;
  result = std::move(ranges);
  whole = shape;
  return true;
}

bool isPart(const SafetensorsFile& file, const std::string& name) {
  return file.metadata().contains("part/" + name) || hasRanges(file, name);
}

bool hasRanges(const SafetensorsFile& file, const std::string& name) {
  return file.metadata().contains(rangesKey + name);
}

std::string memberSuffix(int member) {
  return member == 0 ? "" : std::string(memberWord) + std::to_string(member);
}

std::vector<std::string> memberFiles(const std::string& path) {
  const std::string stem = stemOf(path);
  std::vector<std::string> files;
  std::error_code ignored;
  while (true) {
    std::string file = stem + memberSuffix(static_cast<int>(files.size())) + std::string(extension);
    if (!std::filesystem::is_regular_file(file, ignored)) return files;
    files.push_back(std::move(file));
  }
}

Status StoredTensor::add(const SafetensorsFile& file, const TensorRecord& record) {
  const auto bad = [&](const std::string& what, std::string help = {}) {
    return Status(Exit::badData, file.path() + ": tensor '" + record.name + "' " + what, std::move(help));
  };
  const auto inRanges = file.metadata().find(rangesKey + record.name);
  if (inRanges != file.metadata().end()) return addRanges(file, record, inRanges->second);
  MemberPart of;
  std::vector<std::int64_t> whole = record.shape;
  if (isInRanges())
    return bad("is whole, " + firstFile().path() + " has ranges of it",
               "the files are of different runs: take all from one");
  if (const auto said = file.metadata().find("part/" + record.name); said != file.metadata().end()) {
    Shape shape;
    if (!parsePart(said->second, of, shape))
      return bad("is a part that is none: '" + said->second + "'", "the file is damaged, take another one");
    if (record.shape != dims(localShape(shape, of.part)))
      return bad("has the shape " + toString(record.shape) + ", its part of " + toString(dims(shape)) + " has " +
                     toString(dims(localShape(shape, of.part))),
                 "the file is damaged, take another one");
    whole = dims(shape);
  }
  if (records_.empty()) {
    part_ = of.part;
    shape_ = std::move(whole);
  } else if (of.part != part_ || whole != shape_ || record.element != element()) {
    if (of.part.isWhole() && part_.isWhole()) return {};
    return bad("is " + text(of.part, whole) + ", " + firstFile().path() + " has " + text(part_, shape_) +
                   (record.element != element() ? " of another element type" : ""),
               "the files are of different runs: take all from one");
  } else if (part_.isWhole()) {
    return {};
  }
  for (const Held& held : records_)
    if (held.member == of.member)
      return bad("is the part of member " + std::to_string(of.member) + " of " + std::to_string(part_.of) + ", which " +
                     held.file->path() + " holds, too",
                 allMembers);
  const auto behind =
      std::find_if(records_.begin(), records_.end(), [&](const Held& held) { return held.member > of.member; });
  records_.insert(behind, {&file, &record, of.member});
  return {};
}

Status StoredTensor::addRanges(const SafetensorsFile& file, const TensorRecord& record, const std::string& said) {
  const auto bad = [&](const std::string& what, std::string help) {
    return Status(Exit::badData, file.path() + ": tensor '" + record.name + "' " + what, std::move(help));
  };
  constexpr const char *damaged = "the file is damaged, take another one",
                       *mixed = "the files are of different runs: take all from one";
  Held held{&file, &record, 0, {}};
  Shape local;
  if (!parseRanges(said, held.ranges, local)) return bad("has ranges that are none: '" + said + "'", damaged);
  std::int64_t elements = 0;
  for (const ElementRange& range : held.ranges) elements += range.count;
  if (record.shape != std::vector{elements})
    return bad("has the shape " + toString(record.shape) + ", its ranges have " + std::to_string(elements) +
                   " elements",
               damaged);
  MemberPart of;
  Shape whole = local;
  if (const auto part = file.metadata().find("part/" + record.name); part != file.metadata().end()) {
    if (!parsePart(part->second, of, whole)) return bad("is a part that is none: '" + part->second + "'", damaged);
    if (const Shape own = localShape(whole, of.part); dims(own) != dims(local))
      return bad("has ranges of " + toString(dims(local)) + ", its part of " + toString(dims(whole)) + " has " +
                     toString(dims(own)),
                 damaged);
    held.member = of.member;
  }
  if (!records_.empty() && (!isInRanges() || of.part != part_ || dims(whole) != shape_ || record.element != element()))
    return bad("has ranges of " + text(of.part, dims(whole)) + ", " + firstFile().path() + " has " +
                   text(part_, shape_) + (record.element != element() ? " of another element type" : ""),
               mixed);
  part_ = of.part;
  shape_ = dims(whole);
  const auto behind = std::find_if(records_.begin(), records_.end(), [&](const Held& other) {
    return std::pair(other.member, other.ranges.front().begin) > std::pair(held.member, held.ranges.front().begin);
  });
  records_.insert(behind, std::move(held));
  return {};
}

/// Whether the ranges of a member's records are, together, every element of its part once.
Status StoredTensor::checkRanges(int member) const {
  std::vector<std::pair<ElementRange, const Held*>> all;
  for (const Held& held : records_)
    for (const ElementRange& range : held.ranges)
      if (held.member == member) all.emplace_back(range, &held);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
  const auto bad = [&](const std::string& what, const Held& in) {
    return Status(Exit::badData, in.file->path() + ": tensor '" + name() + "' " + what,
                  "name the folder that holds the files of all replicas, as the run wrote them");
  };
  std::int64_t end = 0;
  for (const auto& [range, held] : all) {
    if (range.begin < end)
      return bad("has element " + std::to_string(range.begin) + ", which another file holds, too", *held);
    if (range.begin > end)
      return bad("is divided over replicas, no file has its elements from " + std::to_string(end) + " to " +
                     std::to_string(range.begin - 1),
                 *held);
    end = range.begin + range.count;
  }
  if (const std::int64_t elements = localShape(shapeOf(shape_), part_).elements(); end < elements)
    return bad("is divided over replicas, no file has its elements from " + std::to_string(end) + " to " +
                   std::to_string(elements - 1),
               *all.back().second);
  return {};
}

/// Composes what a member has of ranges.
void StoredTensor::copyRanges(int member, std::span<std::byte> local) const {
  for (const Held& held : records_) {
    if (held.member != member) continue;
    const std::byte* from = held.record->values.data();
    for (const ElementRange& range : held.ranges) {
      const auto at = static_cast<std::size_t>(range.begin) * bytesOf(element()),
                 bytes = static_cast<std::size_t>(range.count) * bytesOf(element());
      std::memcpy(local.data() + at, from, bytes);
      from += bytes;
    }
    held.file->forget(*held.record);
  }
}

Status StoredTensor::complete() const {
  int lacking = 0;
  const auto has = [&](int member) {
    return std::any_of(records_.begin(), records_.end(), [&](const Held& held) { return held.member == member; });
  };
  while (lacking < part_.of && has(lacking)) ++lacking;
  for (int member = 0; isInRanges() && member < lacking; ++member)
    if (Status status = checkRanges(member); !status) return status;
  if (lacking == part_.of) return {};
  return {Exit::badData,
          firstFile().path() + ": tensor '" + name() + "' is divided over " + std::to_string(part_.of) +
              " members, the files have " + std::to_string(records_.size()) +
              (records_.size() == 1 ? " part" : " parts") + " of it, none of member " + std::to_string(lacking),
          allMembers};
}

Status StoredTensor::read(const WantedTensor& wanted, std::span<std::byte> to) const {
  const Shape whole = wholeShape(wanted.shape, wanted.part.part);
  if (element() != wanted.element || shape_ != dims(whole))
    return {Exit::badData, firstFile().path() + ": tensor '" + name() + "' has the shape " + toString(shape_) +
                               ", the program needs " + toString(dims(whole)) + " of its own element type"};
  if (!isDivided() && wanted.part.part.isWhole()) {
    records_.front().file->copyOut(*records_.front().record, to.data());
    return {};
  }
  copy(wanted.part, to);
  return {};
}

TensorRecord StoredTensor::whole(std::vector<std::byte>& made) const {
  TensorRecord record = *records_.front().record;
  if (!isDivided()) return record;
  record.shape = shape_;
  made.resize(static_cast<std::size_t>(shapeOf(shape_).elements()) * bytesOf(element()));
  copy({}, made);
  record.values = made;
  return record;
}

void StoredTensor::copy(const MemberPart& target, std::span<std::byte> to) const {
  const Shape whole = shapeOf(shape_);
  if (isInRanges() && part_.isWhole() && target.part.isWhole()) return copyRanges(0, to);
  if (target.part.isPadded()) std::fill(to.begin(), to.end(), std::byte{});
  if (isInRanges()) {
    std::vector<std::byte> local(static_cast<std::size_t>(localShape(whole, part_).elements()) * bytesOf(element()));
    for (int member = 0; member < part_.of; ++member) {
      copyRanges(member, local);
      copyPart(whole, bytesOf(element()), {part_, member}, local, target, to);
    }
    return;
  }
  for (const Held& held : records_) {
    copyPart(whole, bytesOf(element()), {part_, held.member}, held.record->values, target, to);
    held.file->forget(*held.record);
  }
}

Status readStored(std::span<const SafetensorsFile* const> files, std::vector<StoredTensor>& tensors) {
  tensors.clear();
  std::vector<std::pair<std::string, std::map<std::string, StoredTensor>>> stages; // by stem, in the order of files
  for (const SafetensorsFile* file : files) {
    const std::string stem = stemOf(*file);
    auto stage = std::find_if(stages.begin(), stages.end(), [&](const auto& other) { return other.first == stem; });
    if (stage == stages.end()) stage = stages.insert(stages.end(), {stem, {}});
    for (const auto& [name, record] : file->tensors())
      if (Status status = stage->second[name].add(*file, record); !status) return status;
  }
  for (auto& [stem, own] : stages)
    for (auto& [name, tensor] : own) {
      if (Status status = tensor.complete(); !status) return status;
      tensors.push_back(std::move(tensor));
    }
  return {};
}

Status StoredTensors::open(std::span<const std::string> paths) {
  tensors_.clear();
  whole_.clear();
  made_.clear();
  files_ = std::vector<SafetensorsFile>(paths.size());
  std::vector<const SafetensorsFile*> files;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (Status status = files_[i].open(paths[i]); !status) return status;
    files.push_back(&files_[i]);
  }
  std::vector<StoredTensor> stored;
  if (Status status = readStored(files, stored); !status) return status;
  for (StoredTensor& tensor : stored) {
    const std::string name = tensor.name();
    tensors_.emplace(name, std::move(tensor));
  }
  return {};
}

const StoredTensor* StoredTensors::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const std::map<std::string, TensorRecord>& StoredTensors::whole() {
  if (whole_.empty())
    for (const auto& [name, tensor] : tensors_) whole_[name] = tensor.whole(made_.emplace_back());
  return whole_;
}

} // namespace pdcrt
