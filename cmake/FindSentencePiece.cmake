# SentencePiece as SentencePiece::sentencepiece, from its headers and libraries alone: Ubuntu's package file insists on
# development files of protobuf, which only its own sources use.
find_path(SentencePiece_INCLUDE_DIR NAMES sentencepiece_trainer.h)
find_library(SentencePiece_LIBRARY NAMES sentencepiece)
find_library(SentencePiece_TRAIN_LIBRARY NAMES sentencepiece_train)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SentencePiece
  REQUIRED_VARS SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY SentencePiece_INCLUDE_DIR)
if(SentencePiece_FOUND AND NOT TARGET SentencePiece::sentencepiece)
  add_library(SentencePiece::sentencepiece UNKNOWN IMPORTED)
  set_target_properties(SentencePiece::sentencepiece PROPERTIES
    IMPORTED_LOCATION ${SentencePiece_LIBRARY} INTERFACE_LINK_LIBRARIES ${SentencePiece_TRAIN_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${SentencePiece_INCLUDE_DIR})
endif()
