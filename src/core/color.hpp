// Which words of messages are coloured, and on which streams?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace colossal {

/// When messages are coloured: the words of --color.
enum class ColorMode : std::uint8_t { automatic, always, never };

/// Sets the mode of the process; `automatic` until then. Thread-safe.
void set_color_mode(ColorMode mode) noexcept;

/// Whether text for this descriptor may hold codes of colours. Automatic: it is a terminal that
/// knows colours, and NO_COLOR is not set.
[[nodiscard]] bool use_color(int stream);

/// How serious the coloured text is.
enum class Paint : std::uint8_t { error, warning, note };

/// `text` in bold and in the colour of `paint`: red, yellow or cyan.
[[nodiscard]] std::string painted(std::string_view text, Paint paint);

/// A line with its severity painted if it starts with one, "error: ...", "[rank 3] warning: ..." or
/// "a.yaml:3:7: error: ..."; else as it is.
[[nodiscard]] std::string paint_severity(std::string_view line);

}  // namespace colossal
