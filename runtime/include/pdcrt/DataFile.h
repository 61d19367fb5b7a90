// The files that a data set, or a single evaluation, has for the inputs of a model: what they are called, and what to
// type where one does not fit. All tools ask here.
//
// The values of input NAME are in NAME.npy, with '_' for every character of NAME other than letters, digits, '.', '-'
// and '_': "input.1" is in input.1.npy, "serving_default_x:0" in serving_default_x_0.npy. A name that begins with '.'
// or
// '-' gets a '_' before it, one of more than 200 characters ends there. A file that keeps the characters which file
// systems allow ("serving_default_x:0.npy") is found as well.
#pragma once

#include "pdcrt/View.h"

#include <cstdint>
#include <span>
#include <string>

namespace pdcrt {

/// NAME as above, without an ending.
std::string dataFileName(const std::string& input);

/// FOLDER/NAME.npy: the file for `input`, or where it should be.
std::string dataFile(const std::string& folder, const std::string& input, const char* ending = ".npy");

/// Whether elements of a file can be read as those of an input: integers as any float, and as any integer that has all
/// their values, floats as floats.
bool converts(Element from, Element to);

/// "np.save('x.npy', x.astype(np.float32))": what to type where elements do not convert.
std::string astypeHelp(const std::string& path, Element wanted);

/// The same where a file has the shape `found` instead of `wanted`, whose axis `samplesAxis` is of any size (-1: none):
/// a reshape where the elements suffice, else what differs.
std::string reshapeHelp(const std::string& path, std::span<const std::int64_t> found,
                        std::span<const std::int64_t> wanted, int samplesAxis);

} // namespace pdcrt
