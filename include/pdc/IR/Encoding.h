// What a value is while it crosses between stages in fewer bytes (encode_rows, decode_rows).
#pragma once

#include "pdc/IR/OpDef.h"

namespace pdc {

/// Whether a value of this type can be encoded: plain rows of f32.
bool canBeEncoded(const Type& type);

/// The bytes of an encoded value, for attributes of encode_rows. Errors: those of the op.
Expected<Type> encodedType(const Type& type, const Attributes& attributes, const OpRegistry& registry,
                           Diagnostics& diags);

} // namespace pdc
