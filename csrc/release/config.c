#include "release/config.h"

#include <string.h>

#include "base/scale.h"

#define MICROSECOND UINT64_C(1000)
#define MILLISECOND UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define MILLION UINT64_C(1000000)

void gb_config_default(struct gb_config *config) {
  *config = (struct gb_config){
      .policy = GB_POLICY_BACKGROUND,
      .cpu_ppm = 10000,
      .duty_ppm = 100000,
      .pause_ns = 100 * MICROSECOND,
      .age_ns = 250 * MILLISECOND,
      .every_ns = 30 * SECOND,
      .children = true,
  };
}

const char *gb_policy_name(enum gb_policy policy) {
  switch (policy) {
  case GB_POLICY_BACKGROUND:
    return "background";
  case GB_POLICY_TRIM:
    return "trim";
  case GB_POLICY_OFF:
    break;
  }
  return "off";
}

struct piece {
  const char *at;
  size_t length;
};

static bool is(struct piece piece, const char *text) {
  return strlen(text) == piece.length && memcmp(piece.at, text, piece.length) == 0;
}

/* A decimal number, with up to six digits behind the point, in millionths. */
static bool read_number(struct piece *text, uint64_t *millionths) {
  uint64_t value = 0;
  unsigned digits = 0;
  for (; text->length > 0 && *text->at >= '0' && *text->at <= '9' && digits < 12; ++digits) {
    value = value * 10 + (uint64_t)(*text->at - '0');
    ++text->at;
    --text->length;
  }
  if (digits == 0)
    return false;
  uint64_t scale = MILLION;
  value *= scale;
  if (text->length > 0 && *text->at == '.') {
    ++text->at;
    --text->length;
    for (digits = 0; text->length > 0 && *text->at >= '0' && *text->at <= '9' && digits < 6; ++digits) {
      scale /= 10;
      value += scale * (uint64_t)(*text->at - '0');
      ++text->at;
      --text->length;
    }
    if (digits == 0)
      return false;
  }
  *millionths = value;
  return true;
}

struct unit {
  const char *name;
  uint64_t times; /* of the base unit */
};
static const struct unit times[] = {
    {"us", MICROSECOND}, {"ms", MILLISECOND}, {"s", SECOND}, {"min", 60 * SECOND}, {NULL, 0}};
static const struct unit shares[] = {{"%", MILLION / 100}, {NULL, 0}};

static bool read_quantity(struct piece text, const struct unit *units, uint64_t *value) {
  uint64_t millionths;
  if (!read_number(&text, &millionths))
    return false;
  for (; units->name != NULL; ++units) {
    if (!is(text, units->name))
      continue;
    *value = gb_scale(millionths, units->times, MILLION);
    return true;
  }
  return false;
}

enum form { FORM_TIME, FORM_SHARE, FORM_WORD };

struct word {
  const char *name;
  int value;
};
static const struct word policies[] = {
    {"background", GB_POLICY_BACKGROUND}, {"trim", GB_POLICY_TRIM}, {"off", GB_POLICY_OFF}, {NULL, 0}};
static const struct word answers[] = {{"yes", true}, {"no", false}, {NULL, 0}};
static const struct word kernels[] = {{"new", false}, {"old", true}, {NULL, 0}};
static const struct word fastbins[] = {{"empty", false}, {"keep", true}, {NULL, 0}};

/* Everything there is to know of one key. */
static const struct key {
  const char *name;
  const char *may_be; /* for the message */
  enum form form;
  const struct word *words;
  uint64_t least; /* nanoseconds, or millionths */
  uint64_t most;
} keys[] = {
    {"cpu", "a share of one core from 0.01% to 100%", FORM_SHARE, NULL, 100, MILLION},
    {"pause", "a time from 10us to 10ms", FORM_TIME, NULL, 10 * MICROSECOND, 10 * MILLISECOND},
    {"duty", "a share of time from 0.1% to 100%", FORM_SHARE, NULL, 1000, MILLION},
    {"age", "a time from 1ms to 60min", FORM_TIME, NULL, MILLISECOND, 3600 * SECOND},
    {"every", "a time from 100ms to 60min", FORM_TIME, NULL, 100 * MILLISECOND, 3600 * SECOND},
    {"policy", "background, trim or off", FORM_WORD, policies, 0, 0},
    {"children", "yes or no", FORM_WORD, answers, 0, 0},
    {"kernel", "new or old", FORM_WORD, kernels, 0, 0},
    {"fastbins", "empty or keep", FORM_WORD, fastbins, 0, 0},
};
#define KEYS "cpu, pause, duty, age, every, policy, children, kernel, fastbins"

static void store(struct gb_config *config, const char *key, uint64_t value) {
  switch (key[0]) {
  case 'c':
    if (key[1] == 'p')
      config->cpu_ppm = (uint32_t)value;
    else
      config->children = value != 0;
    break;
  case 'p':
    if (key[1] == 'a')
      config->pause_ns = value;
    else
      config->policy = (enum gb_policy)value;
    break;
  case 'd':
    config->duty_ppm = (uint32_t)value;
    break;
  case 'a':
    config->age_ns = value;
    break;
  case 'e':
    config->every_ns = value;
    break;
  case 'k':
    config->old_kernel = value != 0;
    break;
  default:
    config->keep_fastbins = value != 0;
    break;
  }
}

static bool read_value(const struct key *key, struct piece text, uint64_t *value) {
  if (key->form == FORM_WORD) {
    for (const struct word *word = key->words; word->name != NULL; ++word) {
      if (is(text, word->name)) {
        *value = (uint64_t)word->value;
        return true;
      }
    }
    return false;
  }
  return read_quantity(text, key->form == FORM_TIME ? times : shares, value) && *value >= key->least &&
         *value <= key->most;
}

/* ---- messages, without stdio ---------------------------------------------------- */

struct line {
  char *text;
  size_t length;
};

static void say(struct line *line, struct piece piece) {
  const size_t room = GB_CONFIG_MESSAGE - 1 - line->length;
  /* What is not a plain character could do anything to a terminal. */
  for (size_t i = 0; i < piece.length && i < room; ++i) {
    const char c = piece.at[i];
    line->text[line->length++] = c >= ' ' && c <= '~' ? c : '?';
  }
  line->text[line->length] = '\0';
}

static void say_text(struct line *line, const char *text) {
  say(line, (struct piece){text, strlen(text)});
}

/* Values are quoted, and long ones cut. */
static void say_value(struct line *line, struct piece piece) {
  enum { SHOWN = 40 };
  const bool cut = piece.length > SHOWN;
  if (cut)
    piece.length = SHOWN;
  say_text(line, "'");
  say(line, piece);
  say_text(line, cut ? "...'" : "'");
}

static enum gb_status read_setting(struct gb_config *config, struct piece setting, struct line *line) {
  const char *equals = memchr(setting.at, '=', setting.length);
  const struct piece name = {setting.at, equals == NULL ? setting.length : (size_t)(equals - setting.at)};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
    if (!is(name, keys[i].name))
      continue;
    const struct piece text = {name.at + name.length + 1,
                               equals == NULL ? 0 : setting.length - name.length - 1};
    uint64_t value;
    if (equals != NULL && read_value(&keys[i], text, &value)) {
      store(config, keys[i].name, value);
      return GB_OK;
    }
    say(line, name);
    say_text(line, " must be ");
    say_text(line, keys[i].may_be);
    if (equals != NULL) {
      say_text(line, ", not ");
      say_value(line, text);
    }
    return GB_BAD_CONFIG;
  }
  say_text(line, "no key ");
  say_value(line, name);
  say_text(line, "; there are " KEYS);
  return GB_BAD_CONFIG;
}

enum gb_status gb_config_parse(struct gb_config *config, const char *text, char message[GB_CONFIG_MESSAGE]) {
  struct gb_config read = *config;
  struct line line = {.text = message};
  message[0] = '\0';
  for (const char *at = text; at != NULL && *at != '\0';) {
    const char *comma = strchr(at, ',');
    const struct piece setting = {at, comma == NULL ? strlen(at) : (size_t)(comma - at)};
    if (setting.length > 0) {
      const enum gb_status status = read_setting(&read, setting, &line);
      if (status != GB_OK)
        return status;
    }
    at = comma == NULL ? NULL : comma + 1;
  }
  *config = read;
  return GB_OK;
}
