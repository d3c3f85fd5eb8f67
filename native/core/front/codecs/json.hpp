// JSON as channels keep it: the codec in a header, options in the notes of an open channel. Reads what Python wrote and believes
// none of it: depth and size are bounded. Writes texts only.
#pragma once

#include "ground/error.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

class Json {
  public:
    enum class Type { null, boolean, number, text, list, object };

    // `text`: one JSON value. Throws `corrupt`.
    static Json parse(std::string_view text) {
        Parser parser{text};
        Json value = parser.value(0);
        parser.skip_spaces();
        if (parser.at != text.size()) parser.fail();
        return value;
    }

    Type type() const { return type_; }
    const std::string &text() const { return text_; } // of a text; the digits of a number
    const std::string &source() const { return source_; }
    const std::vector<Json> &items() const { return items_; }
    const std::vector<std::pair<std::string, Json>> &members() const { return members_; }
    bool is_whole() const { return type_ == Type::number && text_.find_first_of(".eE") == std::string::npos; }
    int64_t whole() const { return std::strtoll(text_.c_str(), nullptr, 10); }
    // An object's member, or null.
    const Json *find(std::string_view name) const {
        for (const auto &[key, value] : members_)
            if (key == name) return &value;
        return nullptr;
    }
    // Equal values; the order of an object's members does not count.
    bool operator==(const Json &other) const {
        if (type_ != other.type_ || text_ != other.text_ || !(items_ == other.items_) || members_.size() != other.members_.size())
            return false;
        for (const auto &[key, value] : members_) {
            const Json *there = other.find(key);
            if (there == nullptr || !(*there == value)) return false;
        }
        return true;
    }
    // An object without some of its members.
    template <class Leave> Json without(Leave &&leave) const {
        Json kept;
        kept.type_ = type_;
        kept.text_ = text_;
        kept.items_ = items_;
        for (const auto &member : members_)
            if (!leave(member.first)) kept.members_.push_back(member);
        return kept;
    }

  private:
    static constexpr int depth_max = 32;

    struct Parser {
        std::string_view text;
        size_t at = 0;

        [[noreturn]] void fail() const {
            throw Error(Code::corrupt, "this is not JSON, at byte " + std::to_string(at) + " of " + std::to_string(text.size()));
        }
        void skip_spaces() {
            while (at < text.size() && std::string_view(" \t\r\n").find(text[at]) != std::string_view::npos) ++at;
        }
        char next() const { return at < text.size() ? text[at] : '\0'; }
        void expect(char wanted) {
            if (next() != wanted) fail();
            ++at;
        }
        bool take(std::string_view word) {
            if (text.substr(at, word.size()) != word) return false;
            at += word.size();
            return true;
        }
        Json value(int depth) {
            if (depth > depth_max) fail();
            skip_spaces();
            const size_t from = at;
            Json made;
            if (next() == '{') object(made, depth);
            else if (next() == '[') list(made, depth);
            else if (next() == '"') {
                made.type_ = Type::text;
                made.text_ = string();
            } else if (take("true") || take("false")) {
                made.type_ = Type::boolean;
                made.text_ = text.substr(from, at - from);
            } else if (!take("null")) number(made);
            made.source_ = text.substr(from, at - from);
            return made;
        }
        void object(Json &made, int depth) {
            made.type_ = Type::object;
            ++at;
            for (skip_spaces(); next() != '}'; skip_spaces()) {
                if (!made.members_.empty()) expect(',');
                skip_spaces();
                std::string key = string();
                skip_spaces();
                expect(':');
                made.members_.emplace_back(std::move(key), value(depth + 1));
            }
            ++at;
        }
        void list(Json &made, int depth) {
            made.type_ = Type::list;
            ++at;
            for (skip_spaces(); next() != ']'; skip_spaces()) {
                if (!made.items_.empty()) expect(',');
                made.items_.push_back(value(depth + 1));
            }
            ++at;
        }
        void number(Json &made) {
            const size_t from = at;
            take("-");
            if (!take("0")) digits();
            if (take(".")) digits();
            if (take("e") || take("E")) {
                if (!take("+")) take("-");
                digits();
            }
            made.type_ = Type::number;
            made.text_ = text.substr(from, at - from);
        }
        void digits() { // at least one
            if (next() < '0' || next() > '9') fail();
            while (next() >= '0' && next() <= '9') ++at;
        }
        std::string string() {
            expect('"');
            std::string made;
            for (; next() != '"'; ++at) {
                if (at >= text.size() || static_cast<unsigned char>(text[at]) < 0x20) fail();
                if (text[at] != '\\') {
                    made += text[at];
                    continue;
                }
                ++at;
                static constexpr std::string_view escaped = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
                if (const size_t found = escaped.find(next()); found != std::string_view::npos && at < text.size())
                    made += meant[found];
                else if (next() == 'u' && at + 4 < text.size()) made += "\\u" + std::string(text.substr(at + 1, 4)), at += 4;
                else fail();
            }
            ++at;
            return made;
        }
    };

    Type type_ = Type::null;
    std::string text_, source_;
    std::vector<Json> items_;
    std::vector<std::pair<std::string, Json>> members_;
};

// A text as JSON, in quotes.
inline std::string json_text(std::string_view text) {
    std::string made = "\"";
    for (const char c : text) {
        if (static_cast<unsigned char>(c) < 0x20) {
            char code[8];
            std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
            made += code;
            continue;
        }
        if (c == '"' || c == '\\') made += '\\';
        made += c;
    }
    return made + '"';
}

} // namespace penstock
