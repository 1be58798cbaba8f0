# Corpora that Debian and Ubuntu packages carry. Sourced by the scripts beside this folder, after packages.sh; needs $chorus.

declare -A asterisk_voices=([en]=en_US_f_Allison [es]=es_MX_f_Allison [fr]=fr_CA_f_June [it]=it_IT_m_Carlo [ru]=ru_RU_f_IvrvoiceRU)

asterisk_packages() { # languages
  local language
  for language in "$@"; do echo "asterisk-core-sounds-$language" "asterisk-core-sounds-$language-wav"; done
}

# The telephone prompts of one language, a tenth held out.
asterisk_corpus() { # language, folder
  local package=asterisk-core-sounds-$1
  mkdir -p data
  zcat "$(packaged_file "$package" "/usr/share/doc/$package/core-sounds-$1.txt.gz")" >"data/core-sounds-$1.txt"
  "$chorus" data asterisk --lang "$1" --texts "data/core-sounds-$1.txt" --sounds "/usr/share/asterisk/sounds/${asterisk_voices[$1]}" --out "$2"
}

text_packages=(fortunes fortunes-min bible-kjv bible-kjv-text)

# English text: the sayings of fortunes and fortunes-min, one document each, and the King James Bible, one document a chapter.
text_corpus() { # folder
  mkdir -p data/text_files
  bible -f 'gen1:1-rev22:21' </dev/null | awk '
    {chapter = $1; sub(/:.*/, "", chapter); sub(/^[^ ]+ /, "")}
    NR > 1 && chapter != last {print "%"}
    {last = chapter; print}' >data/text_files/kjv
  local files=() file
  for file in /usr/share/games/fortunes/*; do
    # Each text has an index (.dat) and a second name (.u8) beside it.
    [[ -L $file || $file == *.dat ]] || files+=("$file")
  done
  "$chorus" data text --separator % --out "$1" "${files[@]}" data/text_files/kjv
}
