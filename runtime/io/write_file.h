// Whole files written atomically.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tessera::io {

/// Writes a file under a temporary name in the same folder, flushes it to disk and renames it.
/// Throws internal with path and reason; the temporary file is then removed.
void write_file(const std::string& path, std::span<const std::byte> bytes);
void write_text_file(const std::string& path, std::string_view text);
/// Flushes a folder's entries to disk, where the file system can.
void sync_folder(const std::string& folder);

}  // namespace tessera::io
